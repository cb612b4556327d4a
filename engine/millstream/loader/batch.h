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

/// Rows [first, first + count) of a batch.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool operator==(const RowRange&) const = default;
};

/// Where the fields of a batch and its mask stand in one block: one region a field and
/// part, each aligned so that JAX can alias it.
class Layout {
 public:
  /// A block for `rows` rows of `schema`, in one part.
  Layout(Schema schema, std::int64_t rows);

  /// A block for some rows of larger batches; there is at least one part.
  Layout(Schema schema, std::vector<RowRange> parts);

  const Schema& schema() const noexcept { return schema_; }
  std::span<const RowRange> parts() const noexcept { return parts_; }
  std::int64_t rows() const noexcept { return rows_; }  // of all parts
  std::int64_t bytes() const noexcept { return bytes_; }
  std::int64_t offset(std::size_t field, std::size_t part = 0) const {
    return offsets_[part * (schema_.size() + 1) + field];
  }
  std::int64_t mask_offset(std::size_t part = 0) const {
    return offset(schema_.size(), part);
  }

 private:
  Schema schema_;
  std::vector<RowRange> parts_;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> offsets_;  // of a part's fields and mask, then the next's
  std::int64_t bytes_ = 0;
};

/// A finished batch in a block of its own.
class Batch {
 public:
  Batch(const Layout& layout, std::shared_ptr<const Block> block);

  /// The fields of one part: their row 0 is the part's first.
  std::span<const Column> columns(std::size_t part = 0) const noexcept {
    return std::span(columns_).subspan(part * fields_, fields_);
  }
  bool* mask(std::size_t part = 0) const noexcept { return masks_[part]; }
  std::int64_t bytes() const noexcept { return block_->size(); }
  /// What the columns and masks are in, for those who need it longer than the batch.
  const std::shared_ptr<const Block>& block() const noexcept { return block_; }
  Beside& beside() noexcept { return beside_; }
  const Beside& beside() const noexcept { return beside_; }
  Failures& failures() noexcept { return failures_; }
  const Failures& failures() const noexcept { return failures_; }

 private:
  std::shared_ptr<const Block> block_;
  std::size_t fields_;
  std::vector<Column> columns_;  // of the parts, one after the other
  std::vector<bool*> masks_;
  Beside beside_;
  Failures failures_;
};

/// Makes batches and takes their blocks back, pages touched, when the last owner of a
/// block lets go, from whatever thread. Outlives the loader where a block does.
class Slots : public std::enable_shared_from_this<Slots> {
 public:
  /// Keeps at most `kept` blocks for the next batches. They come from `maker`, if there
  /// is one, who is needed no longer than batches are taken.
  Slots(Layout layout, std::size_t kept, Maker* maker = nullptr);

  const Layout& layout() const noexcept { return layout_; }
  std::shared_ptr<Batch> take();

  /// Batches whose block someone still holds.
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
