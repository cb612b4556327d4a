#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "millstream/source/mapped_column.h"
#include "millstream/source/source.h"

namespace millstream {

/// A field and the files that hold its rows, one after the other.
struct FieldFiles {
  std::string name;
  std::vector<std::filesystem::path> paths;
};

/// What the header of a mapped file says, and where its rows are.
using OpenedArray = std::pair<ArrayLayout, MappedArray>;

/// One column for each field, whose files `open` opens. Throws `DataError` where files
/// of one field disagree.
std::vector<MappedColumn> joined_columns(
    const std::vector<FieldFiles>& fields,
    const std::function<OpenedArray(const std::filesystem::path&)>& open);

/// Samples made of one row of each of several mapped columns: what every source of
/// fixed-size rows on disk is, once its files have been understood.
class ColumnsSource final : public Source {
 public:
  /// Throws `DataError` unless there are columns, none is empty and all have as many
  /// rows.
  explicit ColumnsSource(std::vector<MappedColumn> columns);

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
