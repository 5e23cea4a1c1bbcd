// The kernel of LSTMs in C programs. @ is the width of a weight.
#include "steelyard/export/c/c_kernels.h"

namespace steelyard::deploy {
namespace {

constexpr std::string_view kLstmShares = R"(
/* An entry i is 2^16 / (1 + exp(-i / 24)): this is that of x / 2^bits, with as many more bits. */
static int32_t logistic_between(const uint16_t *entries, int32_t x, int32_t bits) {
  const int32_t before = entries[x >> bits];
  const int32_t after = entries[(x >> bits) + 1];
  return (before * ((int32_t)1 << bits)) + ((x & (((int32_t)1 << bits) - 1)) * (after - before));
}

/* 1 / (1 + exp(-x)) with 15 bits behind the point; x has 12. */
static int32_t share_of(const uint16_t *entries, int32_t x) {
  const int32_t share = logistic_between(entries, 3 * ((x < 0) ? -x : x), 9);
  return ((x < 0) ? ((((int32_t)1 << 25) - share) + 511) : (share + 512)) >> 10;
}

/* tanh(x) with 15 bits behind the point; x has 12 - left. */
static int32_t bent(const uint16_t *entries, int32_t x, int32_t left) {
  const int32_t size = 3 * ((x < 0) ? -x : x) * ((int32_t)1 << left);
  const int32_t share = (size < (255 * 256)) ? logistic_between(entries, size, 8) : (65535 * 256);
  const int32_t half = (int32_t)1 << 23;
  return ((x < 0) ? ((half - share) + 127) : ((share - half) + 128)) >> 8;
}

static int32_t within_16_bits(int32_t x) {
  const int32_t raised = (x < -32768) ? -32768 : x;
  return (raised > 32767) ? 32767 : raised;
}
)";

constexpr std::string_view kLstmNode = R"(
/* Gates in the order input, output, forget, cell; biases are less the zero points times the sums of
   the weights. */
typedef struct {
  const int8_t *weight;
  const int32_t *bias;
  const int8_t *recurrent;
  const int32_t *recurrent_bias;
  const uint16_t *entries; /* 256 */
  int32_t steps, inputs, units;
  int32_t input_multiplier, input_shift, state_multiplier, state_shift;
  int32_t kept_multiplier, kept_shift, added_multiplier, added_shift;
  int32_t output_multiplier, output_shift, out_zero, least, most;
} lstm_node;

static int32_t scaled_16(int32_t x, int32_t multiplier, int32_t shift) {
  return within_16_bits(scaled(x, multiplier, shift));
}
)";

constexpr std::string_view kLstm = R"(
/* What a gate of a unit is made of; h is the output before, which there is not at first. */
static int32_t gate_@(const lstm_node *n, int32_t gate, const int8_t *x, const int8_t *h,
                      int8_t *row) {
  int32_t sum = n->bias[gate];
  int32_t whole;
  sum += dot(row_@(n->weight, gate * n->inputs, n->inputs, row), x, n->inputs);
  whole = scaled_16(sum, n->input_multiplier, n->input_shift);
  if (h != (const int8_t *)0) {
    sum = n->recurrent_bias[gate];
    sum += dot(row_@(n->recurrent, gate * n->units, n->units, row), h, n->units);
    whole = within_16_bits(whole + scaled_16(sum, n->state_multiplier, n->state_shift));
  }
  return whole;
}

/* Steps of inputs; memory has the cells, two bytes each, and room for a row of weights. */
static void lstm_@(const lstm_node *n, const int8_t *x, int8_t *y, int8_t *memory) {
  const int8_t *h = (const int8_t *)0;
  const int32_t units = n->units;
  int8_t *row = &memory[2 * units];
  int32_t t;
  int32_t u;
  for (u = 0; u < (2 * units); ++u) {
    memory[u] = 0;
  }
  for (t = 0; t < n->steps; ++t) {
    const int8_t *from = &x[t * n->inputs];
    int8_t *to = &y[t * units];
    for (u = 0; u < units; ++u) {
      int8_t *at = &memory[2 * u];
      int32_t cell = (at[1] * 256) + (int32_t)(uint8_t)at[0];
      const int32_t added = share_of(n->entries, gate_@(n, u, from, h, row)) *
                            bent(n->entries, gate_@(n, (3 * units) + u, from, h, row), 0);
      const int32_t kept = share_of(n->entries, gate_@(n, (2 * units) + u, from, h, row)) * cell;
      int32_t output = share_of(n->entries, gate_@(n, units + u, from, h, row));
      cell = within_16_bits(scaled_16(kept, n->kept_multiplier, n->kept_shift) +
                            scaled_16(added, n->added_multiplier, n->added_shift));
      at[0] = (int8_t)(uint8_t)((uint32_t)cell & 255U);
      at[1] = (int8_t)(cell >> 8);
      output = scaled(bent(n->entries, cell, 1) * output, n->output_multiplier, n->output_shift);
      to[u] = coded(output, n->out_zero, n->least, n->most);
    }
    h = to;
  }
}
)";

}  // namespace

std::vector<CKernel> c_lstm_kernels() {
  return {
      {"shares_of_16_bits", kLstmShares},
      {"lstm_node", kLstmNode, {"shares_of_16_bits", "scaled", "coded"}},
      {"lstm_8", kLstm, {"lstm_node", "dot", "row_8"}},
      {"lstm_4", kLstm, {"lstm_node", "dot", "row_4"}},
      {"lstm_2", kLstm, {"lstm_node", "dot", "row_2"}},
  };
}

}  // namespace steelyard::deploy
