"""Hugging Face's Trainer and a transformer; two lines are Steelyard's, marked by <--.

The weights are of 4 bits in groups, the activations of 8 bits with a scale for each token. The file is read again by
transformers, where compressed-tensors is there.

usage: hugging_face_trainer.py; exit code 77: no transformers or no accelerate.
"""
import sys
import tempfile

from made_up_data import needs, sentences

needs("transformers", "accelerate")
import torch
import transformers

import steelyard.torch

RECIPE = {
    "version": 1, "name": "w4a8",
    "quantize": {
        "ignore": ["classifier"],
        "groups": [{"targets": ["Linear"],
                    "weights": {"num_bits": 4, "strategy": "group", "group_size": 32},
                    "activations": {"num_bits": 8, "symmetric": True, "dynamic": True, "strategy": "token"}}],
    },
}


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.tokens, self.labels = sentences(count, seed=seed)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.labels[i]}


transformers.set_seed(0)
transformers.logging.set_verbosity_error()
config = transformers.BertConfig(vocab_size=20, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                 intermediate_size=128, max_position_embeddings=16)
model = transformers.BertForSequenceClassification(config)
print(steelyard.torch.quantize_(model, RECIPE))  # <--
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(folder, num_train_epochs=2, per_device_train_batch_size=32,
                                               learning_rate=2e-3, warmup_steps=10, logging_steps=16, save_strategy="no",
                                               use_cpu=True, report_to=[], disable_tqdm=True)
    trainer = transformers.Trainer(model, arguments, train_dataset=Sentences(1024, 1), eval_dataset=Sentences(256, 2))
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    steelyard.torch.export(model, f"{folder}/export")  # <--
    off = None
    try:
        import compressed_tensors  # noqa: F401
    except ImportError:
        print("compressed-tensors is not installed: the file is not read again")
    else:
        again = transformers.AutoModelForSequenceClassification.from_pretrained(f"{folder}/export").eval()
        tokens = Sentences(64, 3).tokens
        with torch.no_grad():
            ours, theirs = model.eval()(tokens).logits, again(tokens).logits
        off = float((ours - theirs).abs().max() / ours.abs().max())
        print(f"transformers' own model of the file is off by {off:.2g} of the largest output")
print(f"loss {before:.3f} to {after:.3f}")
sys.exit(not (after < 0.8 * before and (off is None or off < 0.05)))
