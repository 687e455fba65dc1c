"""Inverse-depth scaling from nonlinear attention, reproduced from settings to figures."""
