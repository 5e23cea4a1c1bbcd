// The random streams of the data pipeline. The upper 16 bits tell uses of one seed apart; the lower
// 48 hold an epoch.
#pragma once

#include <cstdint>

namespace steelyard {

constexpr std::uint64_t kValidationStream = std::uint64_t{0xDA01} << 48;
constexpr std::uint64_t kShuffleStream = std::uint64_t{0xDA02} << 48;
constexpr std::uint64_t kAugmentStream = std::uint64_t{0xDA03} << 48;
constexpr std::uint64_t kTransformStream = std::uint64_t{0xDA04} << 48;
constexpr std::uint64_t kTestStream = std::uint64_t{0xDA05} << 48;
constexpr std::uint64_t kColourJitterStream = std::uint64_t{0xDA06} << 48;
constexpr std::uint64_t kRotationStream = std::uint64_t{0xDA07} << 48;
constexpr std::uint64_t kTrivialAugmentStream = std::uint64_t{0xDA08} << 48;
constexpr std::uint64_t kErasingStream = std::uint64_t{0xDA09} << 48;
constexpr std::uint64_t kMixStream = std::uint64_t{0xDA0A} << 48;
constexpr std::uint64_t kVerticalFlipStream = std::uint64_t{0xDA0B} << 48;

}  // namespace steelyard
