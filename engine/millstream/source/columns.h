#pragma once

#include <vector>

#include "millstream/source/mapped_column.h"
#include "millstream/source/source.h"

namespace millstream {

/// Samples made of one row of each of several mapped columns: what every source of
/// fixed-size rows on disk is, once its files have been understood.
class ColumnsSource : public Source {
 public:
  /// Throws `DataError` unless there are columns, none is empty and all have as many
  /// rows.
  explicit ColumnsSource(std::vector<MappedColumn> columns);

  std::int64_t size() const noexcept final { return columns_.front().size(); }
  const Schema& schema() const noexcept final { return schema_; }
  void read(std::span<const std::int64_t> indices, std::span<Column> columns,
            Memory& memory) const final;
  void read_for(const Making& making, std::int64_t first,
                std::span<const std::int64_t> indices, std::span<Column> columns,
                Memory& memory) const final;
  void hint(std::span<const std::int64_t> indices) const noexcept final;

 private:
  std::vector<MappedColumn> columns_;
  Schema schema_;
};

}  // namespace millstream
