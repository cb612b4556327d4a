#pragma once

#include <filesystem>

#include "millstream/codec/csv.h"
#include "millstream/source/arrays.h"

namespace millstream {

/// Samples that are the lines of a table of numbers, a scalar field for each column.
/// The table is parsed once, when the source is opened, and kept in memory.
class CsvSource final : public Source {
 public:
  /// Throws as `parse_csv` does.
  explicit CsvSource(const std::filesystem::path& path, const CsvFormat& format = {});

  std::int64_t size() const noexcept override { return arrays_.size(); }
  const Schema& schema() const noexcept override { return arrays_.schema(); }
  void read(std::span<const std::int64_t> indices, std::span<Column> columns,
            Memory& memory) const override {
    arrays_.read(indices, columns, memory);
  }
  bool resident() const noexcept override { return true; }

  /// The table, e.g. to ask whether its integers fit 32 bits.
  const ArraysSource& arrays() const noexcept { return arrays_; }

 private:
  ArraysSource arrays_;
};

}  // namespace millstream
