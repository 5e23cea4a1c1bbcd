"""Tiny random language models as folders of transformers, written by the formats' descriptions alone."""
import json
import os
import random
import struct


def bf16(values):
    """The values as bf16, in bytes: the upper half of float32, rounded to the nearest, ties to even."""
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words))


def write_tensors(path, tensors, dtype="F32"):
    """tensors: {name: (shape, values)}, stored as F32 or BF16."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        begin = len(data)
        data += bf16(values) if dtype == "BF16" else struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_folder(folder, seed, vocabulary=40, width=32, hidden=64, heads=4, key_heads=2, blocks=1, context=64, tied=True,
                 files=2, tokenizer=None, dtype="F32", **more):
    """A Llama in that many files of weights; `more` are keys of its config.json."""
    generator = random.Random(seed)
    tensors = {}

    def add(name, *shape):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [generator.gauss(0, 0.2) if len(shape) > 1 else 1.0 for _ in range(count)]
        tensors[name + ".weight"] = (list(shape), values)

    add("model.embed_tokens", vocabulary, width)
    keys = key_heads * (width // heads)
    for i in range(blocks):
        for name, *shape in (("input_layernorm", width), ("self_attn.q_proj", width, width), ("self_attn.k_proj", keys, width),
                             ("self_attn.v_proj", keys, width), ("self_attn.o_proj", width, width),
                             ("post_attention_layernorm", width), ("mlp.gate_proj", hidden, width),
                             ("mlp.up_proj", hidden, width), ("mlp.down_proj", width, hidden)):
            add(f"model.layers.{i}.{name}", *shape)
    add("model.norm", width)
    if not tied:
        add("lm_head", vocabulary, width)
    os.makedirs(folder, exist_ok=True)
    names = list(tensors)
    places = {name: f"model-{1 + i * files // len(names):05d}-of-{files:05d}.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        write_tensors(os.path.join(folder, file), {n: tensors[n] for n in names if places[n] == file}, dtype)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": places}, file)
    config = {"model_type": "llama", "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": blocks,
              "num_attention_heads": heads, "num_key_value_heads": key_heads, "vocab_size": vocabulary,
              "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": tied, "torch_dtype": "float32", "eos_token_id": 3, **more}
    for name, made in (("config.json", config), ("tokenizer.json", tokenizer)):
        if made:
            with open(os.path.join(folder, name), "w") as file:
                json.dump(made, file)
