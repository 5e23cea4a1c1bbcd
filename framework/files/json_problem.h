// What is wrong with a JSON text, for people.
#pragma once

#include <exception>
#include <string>

namespace steelyard {

// Of what nlohmann's library threw: "FILE:3:14: is no JSON: unexpected end of input" with the line
// and the column of a text that is none, "FILE: key 'model' not found" of another that lacks
// something. `file` is printable.
std::string json_problem(const std::string& file, const std::exception& error);

}  // namespace steelyard
