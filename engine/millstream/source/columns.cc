#include "millstream/source/columns.h"

#include <utility>

#include "millstream/core/error.h"

namespace millstream {
namespace {

using Open = std::function<OpenedArray(const std::filesystem::path&)>;

MappedColumn joined_column(const FieldFiles& field, const Open& open) {
  if (field.paths.empty()) {
    throw ArgumentError(text("'", field.name, "' needs at least one file"));
  }
  std::vector<MappedArray> arrays;
  Field row;
  RowForm form;
  for (const auto& path : field.paths) {
    auto [layout, array] = adding([&] { return ErrorFields{.field = field.name}; },
                                  [&] { return open(path); });
    Field here = row_field(field.name, layout);
    if (arrays.empty()) row = here;
    if (here != row) {
      throw DataError(
          {.file = path.string(),
           .offset = 0,
           .field = field.name,
           .expected = text(str(row), " as in ", field.paths.front().string()),
           .found = str(here)});
    }
    if (layout.big_endian) form.stored = Stored::kBigEndian;
    arrays.push_back(std::move(array));
  }
  return {std::move(row), std::move(arrays), form};
}

}  // namespace

std::vector<MappedColumn> joined_columns(const std::vector<FieldFiles>& fields,
                                         const Open& open) {
  std::vector<MappedColumn> columns;
  for (const FieldFiles& field : fields) columns.push_back(joined_column(field, open));
  return columns;
}

ColumnsSource::ColumnsSource(std::vector<MappedColumn> columns)
    : columns_(std::move(columns)) {
  if (columns_.empty()) throw ArgumentError("a source needs at least one column");
  const MappedColumn& first = columns_.front();
  for (const MappedColumn& column : columns_) {
    if (column.size() != first.size()) {
      throw DataError({.file = column.file(),
                       .offset = column.offset(),
                       .field = column.field().name,
                       .expected = text("as many rows of '", column.field().name,
                                        "' as '", first.field().name, "' has in ",
                                        first.file().str(), ", ", first.size()),
                       .found = text(column.size())});
    }
    if (column.size() < 1) {
      throw DataError(
          {.file = column.file(),
           .offset = column.offset(),
           .field = column.field().name,
           .expected = text("at least one row of '", column.field().name, "'"),
           .found = "0"});
    }
    schema_.push_back(column.field());
  }
}

void ColumnsSource::read(const Request& request, Rows& rows) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    adding([&] { return ErrorFields{.field = schema_[i].name}; },
           [&] {
             columns_[i].read(request.indices, rows.columns[i], rows.memory,
                              request.context);
           });
  }
}

void ColumnsSource::prepare(std::span<const std::int64_t> indices) const noexcept {
  for (const MappedColumn& column : columns_) column.prepare(indices);
}

}  // namespace millstream
