# The whole pipeline with CUDA; without a GPU the same image computes on the CPU.
#
#   docker build -t inverse-depth .
#   docker run --gpus all -v "$PWD/results:/app/results" inverse-depth
#   docker run --gpus all -v "$PWD/results:/app/results" inverse-depth snakemake table3
#
# BASE_IMAGE may be any Rocky Linux 9 or Debian 12: both package Python 3.11. The PyTorch wheel
# brings the CUDA libraries that it computes with, so debian:bookworm-slim makes a smaller image.
ARG BASE_IMAGE=nvidia/cuda:13.0.0-runtime-rockylinux9

FROM ${BASE_IMAGE} AS python
# The base's tag fixes the distribution; its own updates of Python are welcome.
# hadolint ignore=DL3008,DL3041
RUN if command -v dnf > /dev/null; then \
      dnf install -y python3.11 && dnf clean all; \
    else \
      apt-get update \
      && apt-get install -y --no-install-recommends python3.11 \
      && rm -rf /var/lib/apt/lists/*; \
    fi

FROM python AS builder
# hadolint ignore=DL3008
RUN if command -v apt-get > /dev/null; then \
      apt-get update \
      && apt-get install -y --no-install-recommends python3.11-venv \
      && rm -rf /var/lib/apt/lists/*; \
    fi
WORKDIR /build
COPY requirements.lock requirements-cuda.lock ./
RUN python3.11 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir \
       --requirement requirements.lock --constraint requirements-cuda.lock

FROM python
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="inverse-depth" \
      org.opencontainers.image.description="Inverse-depth scaling from nonlinear attention, reproduced" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app/src \
    PYTHONDONTWRITEBYTECODE=1 \
    XDG_CACHE_HOME=/tmp/cache \
    MPLCONFIGDIR=/tmp/cache/matplotlib \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=builder /opt/venv /opt/venv
COPY . /app
# Snakemake writes beside the Snakefile, under the user below or any that `docker run --user` names.
RUN useradd --uid 1000 --user-group --create-home pipeline \
    && mkdir -p /app/results \
    && chmod 1777 /app /app/results
WORKDIR /app
USER 1000:1000
ENTRYPOINT []
CMD ["snakemake"]
