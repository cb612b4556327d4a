#pragma once

#include <unistd.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "millstream/workers/process_worker_pool.h"
#include "workers/worker_instructions.h"

namespace millstream {

inline std::unique_ptr<ProcessWorkerPool> pool_of(const Instructions& instructions,
                                                  ProcessWorkerPool::Options options) {
  return std::make_unique<ProcessWorkerPool>(
      Launch{
          {MILLSTREAM_TEST_WORKER, std::to_string(getpid())}, {}, instructions.str()},
      options);
}

inline std::vector<std::int64_t> samples(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

/// Output rows for a pool, with several byte columns and gaps between rows.
class PoolRows {
 public:
  static constexpr std::byte kUntouched{0x5A};

  /// With `shared` the columns are in the pool's shared memory. `gap` is the number of
  /// bytes between rows.
  PoolRows(WorkerPool& pool, std::vector<std::int64_t> indices,
           const std::vector<std::int64_t>& bytes, bool shared, std::int64_t gap = 0)
      : indices_(std::move(indices)), bytes_(bytes) {
    for (const std::int64_t row : bytes) {
      const std::int64_t size = rows() * (row + gap) + 1;
      blocks_.push_back(shared ? pool.block(size) : Block(size));
      std::memset(blocks_.back().data(), static_cast<int>(kUntouched),
                  static_cast<std::size_t>(size));
      columns_.push_back(
          {DType::kUint8, Shape({row}), blocks_.back().data(), row + gap, nullptr});
    }
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(indices_.size()); }
  const std::vector<std::int64_t>& indices() const { return indices_; }
  const std::vector<Column>& columns() const { return columns_; }
  WorkRequest request(CallContext context = {}) const {
    return {indices_, seeds, input, columns_, context, 0};
  }

  /// Whether every row has the bytes that mode "fill" writes, and the gaps are
  /// untouched.
  bool right() const {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const Column& column = columns_[c];
      for (std::int64_t k = 0; k < rows(); ++k) {
        const auto row = static_cast<std::size_t>(k);
        const std::uint64_t seed = seeds.empty() ? 0 : seeds[row];
        for (std::int64_t at = 0; at < column.stride; ++at) {
          const std::byte expected =
              at < bytes_[c] ? expected_byte(indices_[row], seed, c, at) : kUntouched;
          if (column.row(k)[at] != expected) return false;
        }
      }
      if (column.row(rows())[0] != kUntouched) return false;
    }
    return true;
  }

  std::vector<std::uint64_t> seeds;
  std::vector<Column> input;

 private:
  std::vector<std::int64_t> indices_;
  std::vector<std::int64_t> bytes_;
  std::vector<Block> blocks_;
  std::vector<Column> columns_;
};

}  // namespace millstream
