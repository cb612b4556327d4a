#pragma once

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace millstream {

/// What the worker program of the tests is told first: what to do, and at which sample.
struct Told {
  std::string mode = "fill";
  std::int64_t sample = -1;
  int number = 0;                          // a signal or a status
  std::string path = "-";                  // a file that exists once it has happened
  std::vector<std::int64_t> bytes = {24};  // of a row of each output column

  std::string str() const {
    std::ostringstream out;
    out << mode << ' ' << sample << ' ' << number << ' ' << path;
    for (const std::int64_t row : bytes) out << ' ' << row;
    return out.str();
  }
  static Told parsed(const std::string& words) {
    std::istringstream in(words);
    Told told;
    in >> told.mode >> told.sample >> told.number >> told.path;
    told.bytes.clear();
    for (std::int64_t row; in >> row;) told.bytes.push_back(row);
    return told;
  }
};

/// What "fill" writes.
inline std::byte made_byte(std::int64_t index, std::uint64_t seed, std::size_t column,
                           std::int64_t at) {
  const auto mixed = static_cast<std::uint64_t>(index) * 2654435761u + seed * 97 +
                     column * 31 + static_cast<std::uint64_t>(at) * 7;
  return static_cast<std::byte>(mixed >> 3);
}

}  // namespace millstream
