#include "steelyard/framework/autograd/shapes_only.h"

#include <utility>

namespace steelyard {
namespace {

thread_local bool only_shapes = false;

}  // namespace

ShapesOnlyGuard::ShapesOnlyGuard() : previous_(std::exchange(only_shapes, true)) {}
ShapesOnlyGuard::~ShapesOnlyGuard() { only_shapes = previous_; }

bool shapes_only() { return only_shapes; }

}  // namespace steelyard
