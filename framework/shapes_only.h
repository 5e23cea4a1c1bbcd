// Forward passes that compute shapes only.
#pragma once

namespace steelyard {

// While an object exists, products on this thread (linear, conv2d) check their arguments and give
// zeros of the right shape without computing anything.
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
