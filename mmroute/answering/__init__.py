"""The way of a request to its answer; `mmroute.answering.pipeline` is the way itself."""
