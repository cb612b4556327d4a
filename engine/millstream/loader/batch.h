#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "millstream/core/column.h"
#include "millstream/core/maker.h"
#include "millstream/core/memory.h"
#include "millstream/core/schema.h"

namespace millstream {

/// Where the fields of a batch and its mask stand in one block, each aligned so that
/// JAX can alias it.
class Layout {
 public:
  /// A block for `rows` rows of `schema`.
  Layout(Schema schema, std::int64_t rows);

  const Schema& schema() const noexcept { return schema_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t bytes() const noexcept { return bytes_; }
  std::int64_t offset(std::size_t field) const { return offsets_[field]; }
  std::int64_t mask_offset() const noexcept { return mask_offset_; }

 private:
  Schema schema_;
  std::int64_t rows_;
  std::vector<std::int64_t> offsets_;
  std::int64_t mask_offset_ = 0;
  std::int64_t bytes_ = 0;
};

/// A finished batch in a block of its own.
class Batch {
 public:
  Batch(const Layout& layout, Block block);

  std::span<const Column> columns() const noexcept { return columns_; }
  bool* mask() const noexcept { return mask_; }
  std::int64_t bytes() const noexcept { return block_.size(); }
  Beside& beside() noexcept { return beside_; }
  const Beside& beside() const noexcept { return beside_; }

 private:
  friend class Slots;
  Block block_;
  std::vector<Column> columns_;
  bool* mask_;
  Beside beside_;
};

/// Makes batches and takes their blocks back, pages touched, when the last owner lets
/// go, from whatever thread. Outlives the loader where a batch does.
class Slots : public std::enable_shared_from_this<Slots> {
 public:
  /// Keeps at most `kept` blocks for the next batches. They come from `maker`, if there
  /// is one, who is needed no longer than batches are taken.
  Slots(Layout layout, std::size_t kept, Maker* maker = nullptr);

  const Layout& layout() const noexcept { return layout_; }
  std::shared_ptr<Batch> take();

  /// Batches that someone still holds.
  std::int64_t live() const;

 private:
  void give_back(Block block) noexcept;

  const Layout layout_;
  const std::size_t kept_;
  Maker* const maker_;
  const std::uint64_t generation_;
  mutable std::mutex mutex_;
  std::vector<Block> free_;
  std::int64_t live_ = 0;
};

}  // namespace millstream
