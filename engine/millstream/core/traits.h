#pragma once

#include <algorithm>
#include <cstdint>

namespace millstream {

/// What it takes to read from a source or to apply a transform. The plan combines the
/// traits of its source and stages to decide who makes batches, and when.
struct Traits {
  /// The calling thread blocks for something other than its own CPU, such as a disk or
  /// a worker pool.
  bool waits = false;
  /// It costs about as much as a copy of the bytes.
  bool cheap = true;
  /// It may throw for some rows, or at some times: files, functions, and conversions
  /// that check values.
  bool may_fail = false;
  /// Samples that are stored together and best read together; 0 where each sample can
  /// be read alone.
  std::int64_t blocks = 0;
  /// Workers that do the work in place of the calling thread; 0 where it does the work
  /// itself.
  int workers = 0;

  /// Whether the thread that asks can do the work at once, because handing it over
  /// would take longer.
  bool immediate() const noexcept { return cheap && !waits; }

  bool operator==(const Traits&) const = default;
};

/// The traits of doing both.
inline Traits combined(const Traits& a, const Traits& b) noexcept {
  return {a.waits || b.waits, a.cheap && b.cheap, a.may_fail || b.may_fail,
          std::max(a.blocks, b.blocks), a.workers + b.workers};
}

}  // namespace millstream
