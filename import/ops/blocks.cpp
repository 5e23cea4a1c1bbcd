// Images whose pixels and channels change places, and values that repeat.
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/translator.h"

namespace steelyard::imports {
namespace {

using List = std::vector<std::int64_t>;

struct Blocks {
  std::string image;  // with channels last
  Extent batch;
  std::int64_t channels = 0, height = 0, width = 0, size = 0;
};

Blocks blocks_of(Translator& t) {
  const ExtentShape in = t.input(0).shape;
  if (in.size() != 4) refuse("expected [N, C, H, W], got " + to_string(in));
  Blocks b{t.image(0),   in[0],        fixed(in[1]),
           fixed(in[2]), fixed(in[3]), t.node().integer("blocksize", 0)};
  constexpr std::int64_t kLargest = std::int64_t{1} << 20;
  if (b.size < 1 || b.size > kLargest) refuse("a block size of " + std::to_string(b.size));
  return b;
}

// An image as six dimensions, these in another order, and these as an image again.
void rearranged_image(Translator& t, const Blocks& b, const List& parts, const List& order,
                      const List& channels_height_width) {
  const auto reshaped = [&](const std::string& node, List sizes) {
    sizes.insert(sizes.begin(), -1);
    return t.add("Reshape", {node}, NewShape{std::move(sizes)});
  };
  const std::int64_t c = channels_height_width[0], h = channels_height_width[1],
                     w = channels_height_width[2];
  const std::string moved = t.add("Permute", {reshaped(b.image, parts)}, AxisOrder{order});
  t.give(reshaped(moved, {h, w, c}), {b.batch, {c}, {h}, {w}}, true);
}

void depth_to_space(Translator& t) {
  const Blocks b = blocks_of(t);
  const std::string mode = t.node().text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") refuse("mode: " + mode + " is not supported");
  const std::int64_t s = b.size;
  if (b.channels % (s * s) != 0) refuse("blocks that do not divide the channels");
  const std::int64_t left = b.channels / (s * s);
  const bool blocks_first = mode == "DCR";
  rearranged_image(
      t, b,
      blocks_first ? List{b.height, b.width, s, s, left} : List{b.height, b.width, left, s, s},
      blocks_first ? List{0, 1, 3, 2, 4, 5} : List{0, 1, 4, 2, 5, 3},
      {left, b.height * s, b.width * s});
}

void space_to_depth(Translator& t) {
  const Blocks b = blocks_of(t);
  const std::int64_t s = b.size;
  if (b.height % s != 0 || b.width % s != 0) refuse("blocks that do not divide the image");
  rearranged_image(t, b, {b.height / s, s, b.width / s, s, b.channels}, {0, 1, 3, 2, 4, 5},
                   {b.channels * s * s, b.height / s, b.width / s});
}

void tile(Translator& t) {
  const List repeats = integers_of(t.constant(1, "repeats"), "repeats");
  ExtentShape shape = t.input(0).shape;
  if (repeats.size() != shape.size()) refuse("repeats " + shape_string(repeats));
  std::string node = t.as_held(0);
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    constexpr std::int64_t kMost = 256;
    if (repeats[axis] == 1) continue;
    if (repeats[axis] < 1 || repeats[axis] > kMost) {
      refuse(std::to_string(repeats[axis]) + " repeats");
    }
    const std::int64_t extent = fixed(shape[axis]);
    const auto at = static_cast<std::int64_t>(held_axis(t.input(0), axis));
    const std::vector<std::string> parts(static_cast<std::size_t>(repeats[axis]), node);
    node =
        at + 1 == std::ssize(shape) ? t.add("Cat", parts) : t.add("CatAxis", parts, JoinedAxis{at});
    shape[axis] = {extent * repeats[axis]};
  }
  if (node == t.as_held(0)) return t.give(t.input(0));
  t.give_as(0, node, shape);
}

}  // namespace

std::vector<OperationRow> block_operations() {
  return {
      {"DepthToSpace", depth_to_space},
      {"SpaceToDepth", space_to_depth},
      {"Tile", tile, "repeats that are computed, of the batch", "", WholeNumbers::kMoved},
  };
}

}  // namespace steelyard::imports
