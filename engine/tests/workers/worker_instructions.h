#pragma once

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace millstream {

/// The setup message of the test worker program: what it does, and at which sample.
struct Instructions {
  std::string mode = "fill";
  std::int64_t sample = -1;
  int number = 0;          // a signal, an exit status or microseconds
  std::string path = "-";  // a file to create, so that it happens only once; "-": none
  std::vector<std::int64_t> bytes = {24};  // row size of each output column

  std::string str() const {
    std::ostringstream out;
    out << mode << ' ' << sample << ' ' << number << ' ' << path;
    for (const std::int64_t row : bytes) out << ' ' << row;
    return out.str();
  }
  static Instructions parsed(const std::string& words) {
    std::istringstream in(words);
    Instructions instructions;
    in >> instructions.mode >> instructions.sample >> instructions.number >>
        instructions.path;
    instructions.bytes.clear();
    for (std::int64_t row; in >> row;) instructions.bytes.push_back(row);
    return instructions;
  }
};

/// The byte that mode "fill" writes.
inline std::byte expected_byte(std::int64_t index, std::uint64_t seed,
                               std::size_t column, std::int64_t at) {
  const auto mixed = static_cast<std::uint64_t>(index) * 2654435761u + seed * 97 +
                     column * 31 + static_cast<std::uint64_t>(at) * 7;
  return static_cast<std::byte>(mixed >> 3);
}

}  // namespace millstream
