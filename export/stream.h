// Graphs computed call by call: each call brings new frames of a sequence, and values of earlier
// frames are kept, so that the output is that of the window that ends with the new frames.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/export/stream_options.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// What a call computes.
struct Stream {
  // Its input are the new frames. A value has the frames that are computed in a call: those before
  // were computed in calls before. It is no valid graph, because of the nodes of `histories`.
  Graph graph;
  // Values made by a kConcat of one input: what they had before without its first frames, then that
  // input, along the axis of the node.
  std::vector<std::size_t> histories;
  std::int64_t axis = 0;  // of time in the input
  std::int64_t frames = 1;
  std::int64_t window_frames = 1;  // the input of the graph itself
  // Calls after which nothing is left of frames before them.
  std::int64_t window_calls() const { return (window_frames + frames - 1) / frames; }

  bool makes_history(const Node& node) const;
};

// Throws InputError, naming the layer, for a graph whose windows share no work or not all of it:
// where frames lie at other places of a later window but have other values, as those beside padding
// or of a stride that does not divide the new frames. The graph is one in fixed point.
Stream stream_of(const Graph& graph, const StreamOptions& options);

}  // namespace steelyard::deploy
