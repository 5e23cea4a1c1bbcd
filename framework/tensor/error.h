// Errors caused by the user's input: a file, a recipe, a device that does not exist.
#pragma once

#include <stdexcept>
#include <string>

namespace steelyard {

// A file, recipe, option or dataset is wrong; the message is one line that names the place, the
// expected and the actual. The command line exits with 2.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The requested device does not exist or the build has no support for it; the command line exits
// with 4.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace steelyard
