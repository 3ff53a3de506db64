#!/bin/sh
# From nothing to the report: makes a synthetic trace, trace.jsonl, and reports on it.
#
#   . .venv/bin/activate
#   sh examples/traces/demo.sh
#
# No model is downloaded: the embedded one's tokenizer is in mistral-common.
set -e
python "$(dirname "$0")/make_trace.py" > trace.jsonl
mmroute trace trace.jsonl --model pixtral-12b-2409 --model-id mistralai/Pixtral-12B-2409
