// In a build without CUDA, whose tests skip before they get here.
#include <stdexcept>

#include "tests/framework/held_queue.h"

namespace steelyard::testing {

HeldQueue::HeldQueue(Device device) : device_(device) {
  throw std::logic_error("this build is without CUDA");
}
HeldQueue::~HeldQueue() = default;
void HeldQueue::hold() {}

}  // namespace steelyard::testing
