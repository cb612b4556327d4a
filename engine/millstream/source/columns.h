#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "millstream/source/mapped_column.h"
#include "millstream/source/source.h"

namespace millstream {

/// A field and the files that hold its rows, in order.
struct FieldFiles {
  std::string name;
  std::vector<std::filesystem::path> paths;
};

/// The header of a mapped file and the position of its rows.
using OpenedArray = std::pair<ArrayLayout, MappedArray>;

/// Opens the files of each field with `open` and joins them into one column per field.
/// Throws `DataError` if the files of a field have different dtypes or shapes.
std::vector<MappedColumn> joined_columns(
    const std::vector<FieldFiles>& fields,
    const std::function<OpenedArray(const std::filesystem::path&)>& open);

/// Samples that consist of one row of each of several mapped columns. All sources of
/// fixed-size rows on disk use it.
class ColumnsSource final : public Source {
 public:
  /// Throws `ArgumentError` if there are no columns. Throws `DataError` unless all
  /// columns have the same number of rows, at least one.
  explicit ColumnsSource(std::vector<MappedColumn> columns);

  const std::vector<MappedColumn>& columns() const noexcept { return columns_; }

  std::int64_t size() const noexcept override { return columns_.front().size(); }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .may_fail = true}; }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t> indices) const noexcept override;
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  std::vector<MappedColumn> columns_;
  Schema schema_;
};

}  // namespace millstream
