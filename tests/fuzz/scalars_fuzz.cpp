// The words and numbers of recipes and options, and the quoting of messages.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/device.h"
#include "steelyard/recipes/language/scalar.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

void check_numbers(const std::string& text) {
  const auto integer = parse_integer(text);
  const auto number = parse_number(text);
  if (integer) {
    fuzz::require(std::to_string(*integer) == text || text == "-0", "another integer");
    fuzz::require(number.has_value(), "an integer is no number");
  }
  if (!number) return;
  const double again = std::strtod(text.c_str(), nullptr);
  fuzz::require(std::isfinite(*number) && std::memcmp(&again, &*number, sizeof again) == 0,
                "strtod() reads another number");
  fuzz::require(parse_number(format_number(*number)) == number, "written, it reads otherwise");
}

void check_messages(const std::string& text) {
  const std::string quoted = quote_for_message(text);
  fuzz::require_one_line(quoted);
  fuzz::require(quoted.size() < 400, "a quotation is long");
  fuzz::require_one_line(std::string("x").append(printable(text)));
  fuzz::require(printable(text).size() < 260, "a printable text is long");
  fuzz::require_one_line(
      std::string("x").append(did_you_mean(text, {"num_bits", "symmetric", "epochs"})));
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const std::string text(fuzz::view(data, size));
  check_numbers(text);
  check_messages(text);
  fuzz::accepted([&] {
    try {
      const Device device = resolve_device(text);
      fuzz::require(device.kind == Device::Kind::kCpu || device.index >= 0, "a negative device");
    } catch (const DeviceError& error) {
      fuzz::require_one_line(error.what());
    }
  });
  return 0;
}
