#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "millstream/core/column.h"
#include "millstream/core/memory.h"
#include "millstream/core/schema.h"
#include "millstream/core/worker_pool.h"

namespace millstream {

/// Rows [first, first + count) of a batch.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool operator==(const RowRange&) const = default;
};

/// Where the fields of a batch and its mask lie in one block: one region per field and
/// shard, each aligned so that JAX can alias it.
class Layout {
 public:
  /// A block for `rows` rows of `schema`, in one shard.
  Layout(Schema schema, std::int64_t rows);

  /// A block for these rows of larger batches; there is at least one shard.
  Layout(Schema schema, std::vector<RowRange> shards);

  const Schema& schema() const noexcept { return schema_; }
  std::span<const RowRange> shards() const noexcept { return shards_; }
  std::int64_t rows() const noexcept { return rows_; }  // of all shards
  std::int64_t bytes() const noexcept { return bytes_; }
  std::int64_t offset(std::size_t field, std::size_t shard = 0) const {
    return offsets_[shard * (schema_.size() + 1) + field];
  }
  std::int64_t mask_offset(std::size_t shard = 0) const {
    return offset(schema_.size(), shard);
  }

 private:
  Schema schema_;
  std::vector<RowRange> shards_;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> offsets_;  // of a shard's fields and mask, then the next's
  std::int64_t bytes_ = 0;
};

/// A finished batch in a block of its own.
class Batch {
 public:
  Batch(const Layout& layout, std::shared_ptr<const Block> block);

  /// The fields of one shard: their row 0 is the shard's first.
  std::span<const Column> columns(std::size_t shard = 0) const noexcept {
    return std::span(columns_).subspan(shard * fields_, fields_);
  }
  bool* mask(std::size_t shard = 0) const noexcept { return masks_[shard]; }
  std::int64_t bytes() const noexcept { return block_->size(); }
  /// What the columns and masks are in, for those who need it longer than the batch.
  const std::shared_ptr<const Block>& block() const noexcept { return block_; }
  HostValues& host_values() noexcept { return host_values_; }
  const HostValues& host_values() const noexcept { return host_values_; }
  Failures& failures() noexcept { return failures_; }
  const Failures& failures() const noexcept { return failures_; }

 private:
  std::shared_ptr<const Block> block_;
  std::size_t fields_;
  std::vector<Column> columns_;  // of the shards, one after the other
  std::vector<bool*> masks_;
  HostValues host_values_;
  Failures failures_;
};

/// Makes batches and takes their blocks back, pages touched, when the last owner of a
/// block lets go, from whatever thread. Outlives the loader where a block does.
class Slots : public std::enable_shared_from_this<Slots> {
 public:
  /// Keeps at most `kept` blocks for the next batches. They come from `worker_pool`, if
  /// it is not null; it must live as long as batches are taken.
  Slots(Layout layout, std::size_t kept, WorkerPool* worker_pool = nullptr);

  const Layout& layout() const noexcept { return layout_; }
  std::shared_ptr<Batch> take();

  /// Batches whose block someone still holds.
  std::int64_t live() const;

 private:
  void give_back(Block block) noexcept;

  const Layout layout_;
  const std::size_t kept_;
  WorkerPool* const worker_pool_;
  const std::uint64_t generation_;
  mutable std::mutex mutex_;
  std::vector<Block> free_;
  std::int64_t live_ = 0;
};

}  // namespace millstream
