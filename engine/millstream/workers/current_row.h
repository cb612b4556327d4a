#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "millstream/core/error.h"

namespace millstream {

/// How many of its `rows` rows a worker is making at this moment. A worker stores the
/// row k that it makes as `current`, or -n while it makes the first n rows of its chunk
/// together.
inline std::int64_t current_row_count(std::int64_t current, std::int64_t rows) {
  return std::max<std::int64_t>(-std::max(current, -rows), 1);
}

/// The sample that a worker is making, or nothing if it makes several rows together.
inline std::optional<std::int64_t> current_sample(
    std::int64_t current, std::span<const std::int64_t> indices) {
  const auto rows = static_cast<std::int64_t>(indices.size());
  if (current_row_count(current, rows) > 1) return std::nullopt;
  const auto row = std::clamp<std::int64_t>(current, 0, rows - 1);
  return indices[static_cast<std::size_t>(row)];
}

/// The samples that a worker is making, for messages.
inline std::string current_samples(std::int64_t current,
                                   std::span<const std::int64_t> indices) {
  const auto rows = static_cast<std::int64_t>(indices.size());
  const std::int64_t count = current_row_count(current, rows);
  if (const auto sample = current_sample(current, indices)) {
    return text("sample ", *sample);
  }
  constexpr std::int64_t kMost = 8;
  std::string samples = "one of samples [";
  for (const std::int64_t index :
       indices.first(static_cast<std::size_t>(std::min(count, kMost)))) {
    if (samples.back() != '[') samples += ", ";
    samples += std::to_string(index);
  }
  return samples + (count > kMost ? ", ...]" : "]");
}

}  // namespace millstream
