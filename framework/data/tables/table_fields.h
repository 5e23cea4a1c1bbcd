// The fields of a table's rows, and the features that they give. Files are csv.h's matter.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/data/dataset_names.h"

namespace steelyard {

// 'text', printable and short, for messages.
std::string quoted_field(std::string_view text);

// Whether a text is one of the words; spaces around either do not count.
bool is_among(const std::vector<std::string>& words, std::string_view text);

// A finite number rounded to float, or nothing. A whole number of more than 6 digits is not
// rounded.
std::optional<float> number_in_field(std::string_view text);

// Advice about fields that should be numbers.
inline constexpr const char* kNoNumberAdvice =
    " (data.table.categories names columns of words, data.table.missing what stands for a missing "
    "value)";
// What is said of a field that is no number; the advice only where it is not one that float32
// would round.
std::string no_number_text(const std::string& column, std::string_view text,
                           const std::string& advice = kNoNumberAdvice);

// The category of a field; "" is that of the words for missing values. Throws InputError for an
// empty field that nobody has named.
std::string category_in_field(const std::string& column, std::string_view text,
                              const std::vector<std::string>& missing);

// The features [feature_count(columns)] of a row, whose fields are those of the columns. Throws
// InputError that names the column for what is no number, and for a category that it does not have.
void encode_row(const std::vector<TableColumn>& columns, const std::vector<std::string>& missing,
                std::span<const std::string_view> fields, float* to);

}  // namespace steelyard
