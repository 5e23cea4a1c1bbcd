"""Tiny random language models as GGUF files, written by the format's description alone."""
import random
import struct

ALIGNMENT = 32
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9


def _text(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _entry(key, value):
    if isinstance(value, list):  # of strings, or of whole numbers
        texts = isinstance(value[0], str)
        elements = b"".join(_text(x) if texts else struct.pack("<i", x) for x in value)
        return _text(key) + struct.pack("<IIQ", ARRAY, STRING if texts else I32, len(value)) + elements
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", STRING) + _text(value)
    if isinstance(value, float):
        return _text(key) + struct.pack("<If", F32, value)
    return _text(key) + struct.pack("<II", U32, value)


def write_gguf(path, entries, tensors):
    """tensors: {name: (shape, values)}, stored as f32, or {name: (shape, bytes, number of the type)}."""
    infos, data = b"", b""
    for name, (shape, values, *kind) in tensors.items():
        infos += _text(name) + struct.pack("<I", len(shape))
        infos += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", *(kind or [0]), len(data))
        data += values if kind else struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % ALIGNMENT)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    header += b"".join(_entry(key, value) for key, value in entries.items()) + infos
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT) + data)


def write_llama(path, seed, vocabulary=40, width=32, hidden=64, heads=4, key_heads=2, blocks=1, context=64,
                tokenizer=None, tied=True, stored_as=None):
    """A Llama. `tokenizer`: entries tokenizer.ggml.*, if it has one; `tied`: the head shares the embedding's table;
    `stored_as(name, shape)`: bytes and number of the type of a matrix, None for f32."""
    generator = random.Random(seed)
    tensors = {}

    def add(name, *shape):
        count = 1
        for size in shape:
            count *= size
        spread = 0.2 if len(shape) == 2 else 0.0
        values = [generator.gauss(0, spread) if spread else 1.0 for _ in range(count)]
        other = stored_as and len(shape) == 2 and stored_as(name, shape)
        tensors[name + ".weight"] = (shape, *other) if other else (shape, values)

    add("token_embd", vocabulary, width)
    for block in range(blocks):
        add(f"blk.{block}.attn_norm", width)
        add(f"blk.{block}.attn_q", width, width)
        add(f"blk.{block}.attn_k", key_heads * (width // heads), width)
        add(f"blk.{block}.attn_v", key_heads * (width // heads), width)
        add(f"blk.{block}.attn_output", width, width)
        add(f"blk.{block}.ffn_norm", width)
        add(f"blk.{block}.ffn_gate", hidden, width)
        add(f"blk.{block}.ffn_up", hidden, width)
        add(f"blk.{block}.ffn_down", width, hidden)
    add("output_norm", width)
    if not tied:
        add("output", vocabulary, width)
    write_gguf(path, {"general.architecture": "llama", "general.name": "tiny", "general.file_type": 0,
                      "llama.block_count": blocks, "llama.context_length": context, "llama.embedding_length": width,
                      "llama.feed_forward_length": hidden, "llama.attention.head_count": heads,
                      "llama.attention.head_count_kv": key_heads, "llama.attention.layer_norm_rms_epsilon": 1e-5,
                      "llama.rope.freq_base": 10000.0, **(tokenizer or {"tokenizer.ggml.model": "none"})}, tensors)
