#include "steelyard/export/c/c_stream.h"

#include <fmt/format.h>

#include "steelyard/export/c/c_kernels.h"
#include "steelyard/export/c/c_text.h"
#include "steelyard/export/stream_windows.h"

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kCallsAfterWindow = 3;  // of the test: windows of its own frames alone

constexpr std::string_view kFollow = R"(
/* Rows of codes of the calls before, of which the first make room for new ones. */
typedef struct {
  int32_t rows, kept, fresh;
} follow_node;

static void follow(const follow_node *n, const int8_t *restrict x, int8_t *restrict y) {
  const int8_t *from = x;
  int8_t *to = y;
  int32_t row;
  int32_t i;
  for (row = 0; row < n->rows; ++row) {
    for (i = 0; i < n->kept; ++i) {
      to[i] = to[i + n->fresh];
    }
    for (i = 0; i < n->fresh; ++i) {
      to[n->kept + i] = from[i];
    }
    from = &from[n->fresh];
    to = &to[n->kept + n->fresh];
  }
}
)";

}  // namespace

std::vector<CKernel> c_stream_kernels() { return {{"follow", kFollow}}; }

void add_c_history(CNodes& nodes, const Node& node) {
  const Shape& added = nodes.graph().values[node.inputs[0]].shape;
  const Shape& out = nodes.graph().values[node.output].shape;
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d < node.as<JoinedAxis>().axis; ++d) {
    rows *= out[static_cast<std::size_t>(d)];
  }
  const std::int64_t fresh = shape_size(added) / rows;
  CFields fields;
  fields.set("rows", rows).set("kept", shape_size(out) / rows - fresh).set("fresh", fresh);
  nodes.persist(node);
  nodes.call("follow", "follow_node", node, fields);
}

std::string c_stream_constants(const Stream& stream, std::int64_t state_bytes) {
  return fmt::format(
      R"(/* The first bytes of the arena are kept from call to call; between calls, the others may be used
   for something else. */
#define STEELYARD_STATE_BYTES {}

/* New frames that the input of a call has, those of the window that its output belongs to, and calls
   that bring a window. */
#define STEELYARD_STREAM_FRAMES {}
#define STEELYARD_WINDOW_FRAMES {}
#define STEELYARD_WINDOW_CALLS {}

)",
      state_bytes, stream.frames, stream.window_frames, stream.window_calls());
}

std::string c_stream_declaration() {
  return R"(/* Before the first call of a sequence: as if frames of the zero point had come before, for which
   it computes STEELYARD_WINDOW_CALLS calls. */
void steelyard_reset(int8_t *arena);

)";
}

std::string c_stream_reset() {
  return R"(
void steelyard_reset(int8_t *arena) {
  int32_t call;
  int32_t i;
  for (call = 0; call < STEELYARD_WINDOW_CALLS; ++call) {
    for (i = 0; i < STEELYARD_INPUT_SIZE; ++i) {
      arena[STEELYARD_INPUT_OFFSET + i] = STEELYARD_INPUT_ZERO_POINT;
    }
    steelyard_run(arena);
  }
}
)";
}

std::string c_stream_test(const Stream& stream, const Graph& whole, const std::string& header) {
  const std::int64_t calls = stream.window_calls() + kCallsAfterWindow;
  const Tensor expected = stream_outputs(stream, whole, noise_of_calls(stream, calls, 1));
  std::string out = fmt::format(
      R"(/* main() compares the codes of each call with those that training's interpreter gives for the
   window that ends with it. */
#include <stdio.h>
#include <string.h>

#include "{}"

#define CALLS {}

static const int8_t expected[CALLS * STEELYARD_OUTPUT_SIZE] = {{
  {}}};
)",
      header, calls, c_list(std::span<const std::int8_t>(expected.span<std::int8_t>())));
  out += R"(
static int8_t arena[STEELYARD_ARENA_BYTES];

int main(void) {
  uint32_t state = 1;
  long differing = 0;
  int32_t call;
  int32_t i;
  memset(arena, 77, sizeof(arena));
  steelyard_reset(arena);
  for (call = 0; call < CALLS; ++call) {
    memset(&arena[STEELYARD_STATE_BYTES], 99, sizeof(arena) - STEELYARD_STATE_BYTES);
    for (i = 0; i < STEELYARD_INPUT_SIZE; ++i) {
      state = (state * 1664525U) + 1013904223U;
      arena[STEELYARD_INPUT_OFFSET + i] = (int8_t)((int32_t)(state >> 24) - 128);
    }
    steelyard_run(arena);
    for (i = 0; i < STEELYARD_OUTPUT_SIZE; ++i) {
      if (arena[STEELYARD_OUTPUT_OFFSET + i] != expected[(call * STEELYARD_OUTPUT_SIZE) + i]) {
        ++differing;
      }
    }
  }
  printf("%ld of %ld codes differ\n", differing, (long)CALLS * STEELYARD_OUTPUT_SIZE);
  return (differing == 0) ? 0 : 1;
}
)";
  return out;
}

}  // namespace steelyard::deploy
