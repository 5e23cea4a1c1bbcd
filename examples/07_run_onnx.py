"""Classifies images with ONNX Runtime: 07_run_onnx.py MODEL.onnx IMAGES.idx.gz LABELS.idx.gz"""
import gzip
import json
import sys

import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
# On x86 without VNNI, sums of products of u8 and s8 saturate by default. On other processors this changes nothing.
options.add_session_config_entry("session.x64quantprecision", "1")
session = onnxruntime.InferenceSession(sys.argv[1], options)
how = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
images = np.frombuffer(gzip.open(sys.argv[2]).read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
labels = np.frombuffer(gzip.open(sys.argv[3]).read(), np.uint8, offset=8)
inputs = ((images / 255 - how["mean"]) / how["stddev"]).astype(np.float32)
logits = session.run(None, {"input": inputs.transpose(0, 3, 1, 2)})[0]
top1 = 100 * np.mean(logits.argmax(1) == labels)
print(f"{sys.argv[1]}: top-1 {top1:.2f} % of {len(labels)} images")
sys.exit(0 if top1 > 50 else 1)
