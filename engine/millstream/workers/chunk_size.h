#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace millstream {

/// Chooses how many rows a worker gets in one chunk: enough that handing out chunks is
/// cheap, and few enough that all workers are busy. Measures the cost of a row.
/// Thread-safe.
class ChunkSize {
 public:
  /// With `whole`, a chunk always has all rows of a batch.
  explicit ChunkSize(bool whole = false) noexcept : whole_(whole) {}

  /// `concurrency` is the number of batches in progress, including this one.
  std::int64_t rows_per_chunk(std::int64_t rows, int workers,
                              int concurrency = 1) const noexcept {
    if (whole_) return std::max<std::int64_t>(rows, 1);
    const std::int64_t row_ns = row_ns_.load(std::memory_order_relaxed);
    const std::int64_t share =
        std::max<std::int64_t>((rows + workers - 1) / workers, 1);
    if (row_ns == 0) return share;
    // Rows are cheap: each worker makes whole batches.
    if (rows * row_ns < kWholeNs) return rows;
    // Every worker already has a whole batch, and at least one is waiting.
    if (rows * row_ns < kChunkNs && concurrency > workers) return rows;
    // Every worker gets the same number of chunks, so that none is idle at the end.
    const std::int64_t chunks =
        std::max<std::int64_t>((share * row_ns + kChunkNs / 2) / kChunkNs, 1);
    return (share + chunks - 1) / chunks;
  }
  /// Whether a chunk of `rows` rows takes so little time that it can wait behind
  /// another one.
  bool is_short(std::int64_t rows) const noexcept {
    const std::int64_t row_ns = row_ns_.load(std::memory_order_relaxed);
    return row_ns > 0 && rows * row_ns < kShortNs;
  }
  /// Records that `rows` rows took `taken`.
  void record(std::int64_t rows, std::chrono::nanoseconds taken) noexcept {
    const std::int64_t before = row_ns_.load(std::memory_order_relaxed);
    const std::int64_t now = taken.count() / std::max<std::int64_t>(rows, 1);
    row_ns_.store(before == 0 ? now : before + (now - before) / 4,
                  std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t kChunkNs = 32'000'000;
  static constexpr std::int64_t kShortNs = 8'000'000;
  static constexpr std::int64_t kWholeNs = 1'000'000;
  const bool whole_;
  std::atomic<std::int64_t> row_ns_{0};
};

}  // namespace millstream
