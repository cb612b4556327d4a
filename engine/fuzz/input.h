#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "millstream/core/error.h"

namespace millstream {

/// What libFuzzer hands over, as bytes.
inline std::span<const std::byte> fuzzed(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

/// Runs a parser, which may refuse its input with a `DataError` and in no other way.
template <typename Parse>
int accept_or_refuse(const Parse& parse) {
  try {
    parse();
  } catch (const DataError&) {
  }
  return 0;
}

/// A promise that a parser made.
inline void require(bool kept) {
  if (!kept) __builtin_trap();
}

}  // namespace millstream
