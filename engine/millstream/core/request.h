#pragma once

#include <cstdint>
#include <span>

#include "millstream/core/column.h"
#include "millstream/core/memory.h"
#include "millstream/core/random.h"
#include "millstream/core/worker_pool.h"

namespace millstream {

/// The context of a call that does not belong to a batch.
inline const CallContext kNoContext;

/// The samples that a call reads or transforms, one per row. Does not own the memory it
/// points to. `Request{indices}` is a request that does not belong to a batch.
struct Request {
  std::span<const std::int64_t> indices;  // -1 in padding; sources never receive it
  std::span<const std::uint32_t> epochs = {};  // one per row; none means epoch 0
  Seed seed = {};
  std::int64_t first = 0;  // the batch row of row 0
  const CallContext& context = kNoContext;
  std::uint32_t stage = 0;  // the number of the source or transform for `random`

  std::int64_t rows() const noexcept {
    return static_cast<std::int64_t>(indices.size());
  }

  /// The random numbers of this stage for the sample in row k.
  Random random(std::int64_t k) const {
    const auto row = static_cast<std::size_t>(k);
    return {seed, epochs.empty() ? 0 : epochs[row], indices[row], stage};
  }

  /// One 64-bit seed per row for a function outside the engine.
  std::span<const std::uint64_t> function_seeds(Memory& memory) const {
    const auto seeds = memory.array<std::uint64_t>(rows());
    for (std::int64_t k = 0; k < rows(); ++k) {
      seeds[static_cast<std::size_t>(k)] = random(k).bits64();
    }
    return seeds;
  }

  /// The request for rows [begin, begin + count) of this one.
  Request slice(std::size_t begin, std::size_t count) const {
    return {indices.subspan(begin, count),
            epochs.empty() ? epochs : epochs.subspan(begin, count),
            seed,
            first + static_cast<std::int64_t>(begin),
            context,
            stage};
  }
};

/// The columns that a call reads or writes, and the arena for everything else that must
/// stay valid until the caller resets it.
struct Rows {
  std::span<const Column> columns;
  Memory& memory;
};

}  // namespace millstream
