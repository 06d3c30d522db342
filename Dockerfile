# docker build -t editjudge .                          on a CPU
# docker build -t editjudge --build-arg TORCH_INDEX= . on GPUs: PyPI's own torch brings CUDA
# docker run --rm -v "$PWD:/photos" -w /photos editjudge compare --source s.png ...
FROM python:3.11-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /editjudge
COPY . .
ARG TORCH_INDEX="--extra-index-url https://download.pytorch.org/whl/cpu"
RUN make setup TORCH_INDEX="$TORCH_INDEX" && rm -rf /root/.cache
ENV PATH="/editjudge/.venv/bin:$PATH"
ENTRYPOINT ["editjudge"]
CMD ["--help"]
