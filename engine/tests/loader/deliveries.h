#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "millstream/loader/loader.h"

namespace millstream {

/// Shorthands for the deliveries that the tests use.
inline std::shared_ptr<const Batch> take(Loader& loader, const Position& position,
                                         std::chrono::milliseconds timeout) {
  return loader.deliver({.position = position, .timeout = timeout}).batch;
}

inline bool make_ready(Loader& loader, const Position& position,
                       std::chrono::milliseconds timeout) {
  return loader.deliver({.position = position, .timeout = timeout, .keep = true}).done;
}

inline void fill(Loader& loader, const Position& position,
                 std::span<const Column> output, bool* mask) {
  loader.deliver({.position = position, .output = output, .mask = mask});
}

inline bool fill_if_ready(Loader& loader, const Position& position,
                          std::span<const Column> output, bool* mask) {
  return loader
      .deliver({.position = position,
                .output = output,
                .mask = mask,
                .timeout = std::chrono::milliseconds(0)})
      .done;
}

inline void fill_shard(Loader& loader, const Position& position, const RowRange& rows,
                       std::span<const Column> output, bool* mask) {
  loader.deliver({.position = position, .output = output, .mask = mask, .shard = rows});
}

}  // namespace millstream
