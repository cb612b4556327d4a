#include "millstream/source/columns.h"

#include <utility>

#include "millstream/core/error.h"

namespace millstream {

ColumnsSource::ColumnsSource(std::vector<MappedColumn> columns)
    : columns_(std::move(columns)) {
  if (columns_.empty()) throw ArgumentError("a source needs at least one column");
  const MappedColumn& first = columns_.front();
  for (const MappedColumn& column : columns_) {
    if (column.size() != first.size()) {
      throw DataError(text(column.path(), ": offset ", column.offset(),
                           ": expected as many rows of '", column.field().name,
                           "' as '", first.field().name, "' has in ", first.path(),
                           ", ", first.size(), ", found ", column.size()));
    }
    if (column.size() < 1) {
      throw DataError(text(column.path(), ": offset ", column.offset(),
                           ": expected at least one row of '", column.field().name,
                           "', found 0"));
    }
    schema_.push_back(column.field());
  }
}

void ColumnsSource::read(std::span<const std::int64_t> indices,
                         std::span<Column> columns, Memory& memory) const {
  read_for({}, 0, indices, columns, memory);
}

void ColumnsSource::read_for(const Making& making, std::int64_t /*first*/,
                             std::span<const std::int64_t> indices,
                             std::span<Column> columns, Memory& memory) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    columns_[i].read(indices, columns[i], memory, making);
  }
}

void ColumnsSource::hint(std::span<const std::int64_t> indices) const noexcept {
  for (const MappedColumn& column : columns_) column.hint(indices);
}

}  // namespace millstream
