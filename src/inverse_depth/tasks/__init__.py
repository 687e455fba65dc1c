"""The tasks: `name` in the settings is the file `name.py` here, whose `draw` poses the question."""
