// Forward passes that compute shapes only.
#pragma once

namespace steelyard {

// While an object exists, expensive operations on this thread (linear, matmul, conv2d,
// conv_transpose2d, lstm, gru, embedding) check their arguments and give zeros of the right shape
// without computing anything. All others compute as always.
class ShapesOnlyGuard {
 public:
  ShapesOnlyGuard();
  ~ShapesOnlyGuard();
  ShapesOnlyGuard(const ShapesOnlyGuard&) = delete;
  ShapesOnlyGuard& operator=(const ShapesOnlyGuard&) = delete;

 private:
  bool previous_;
};

bool shapes_only();

}  // namespace steelyard
