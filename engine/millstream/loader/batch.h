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

/// The memory layout of a batch in one block: one region per shard and field, and one
/// per shard for the mask. Each region is aligned so that JAX can alias it.
class Layout {
 public:
  /// The layout of `rows` rows in a single shard.
  Layout(Schema schema, std::int64_t rows);

  /// The layout of the given row ranges of a batch, one per shard. There must be at
  /// least one.
  Layout(Schema schema, std::vector<RowRange> shards);

  const Schema& schema() const noexcept { return schema_; }
  std::span<const RowRange> shards() const noexcept { return shards_; }
  std::int64_t rows() const noexcept { return rows_; }  // in all shards together
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
  std::vector<std::int64_t> offsets_;  // fields and mask of each shard in turn
  std::int64_t bytes_ = 0;
};

/// A batch in a block of its own.
class Batch {
 public:
  Batch(const Layout& layout, std::shared_ptr<const Block> block);

  /// The columns of one shard. Row 0 is the first row of the shard.
  std::span<const Column> columns(std::size_t shard = 0) const noexcept {
    return std::span(columns_).subspan(shard * fields_, fields_);
  }
  bool* mask(std::size_t shard = 0) const noexcept { return masks_[shard]; }
  std::int64_t bytes() const noexcept { return block_->size(); }
  /// The memory of the columns and masks. Callers that need it longer than the batch
  /// keep a reference.
  const std::shared_ptr<const Block>& block() const noexcept { return block_; }
  HostValues& host_values() noexcept { return host_values_; }
  const HostValues& host_values() const noexcept { return host_values_; }
  Failures& failures() noexcept { return failures_; }
  const Failures& failures() const noexcept { return failures_; }

 private:
  std::shared_ptr<const Block> block_;
  std::size_t fields_;
  std::vector<Column> columns_;  // those of the first shard, then those of the next
  std::vector<bool*> masks_;
  HostValues host_values_;
  Failures failures_;
};

/// Allocates batches and reuses their memory, whose pages are already mapped in. A slot
/// is the block that holds one batch. `Slots` takes a block back when its last owner
/// releases it, on any thread. Each block keeps the `Slots` alive. Thread-safe.
class Slots : public std::enable_shared_from_this<Slots> {
 public:
  /// Keeps at most `kept` unused blocks. New blocks come from `worker_pool` if it is
  /// not null; the pool must outlive all calls of `take`.
  Slots(Layout layout, std::size_t kept, WorkerPool* worker_pool = nullptr);

  const Layout& layout() const noexcept { return layout_; }
  std::shared_ptr<Batch> take();

  /// How many blocks are in use.
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
