#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millstream/core/dtype.h"

namespace millstream {

/// How a table of numbers is written down.
struct CsvFormat {
  char delimiter = ',';
  bool header = true;  // the first line names the columns
  /// The columns to take, in this order; all where there are none. The cells of others
  /// may be anything.
  std::vector<std::string> columns;
};

/// A column of numbers: int64 where all of them are integers that fit, else float64.
struct CsvColumn {
  std::string name;  // "column0" and so on where there is no header
  DType dtype = DType::kInt64;
  std::vector<std::int64_t> integers;
  std::vector<double> reals;

  const std::byte* data() const noexcept {
    return dtype == DType::kInt64 ? reinterpret_cast<const std::byte*>(integers.data())
                                  : reinterpret_cast<const std::byte*>(reals.data());
  }
};

struct CsvTable {
  std::vector<CsvColumn> columns;
  std::int64_t rows = 0;
};

/// Reads a table of numbers. Cells may be in quotes, lines may end in CRLF, a byte
/// order mark may come first, and empty lines anywhere. Throws `DataError` naming
/// `name`, the line and the column of a cell that is no number and of a line that is
/// too short or too long; `ArgumentError` for a column that is not there.
CsvTable parse_csv(std::span<const std::byte> bytes, const std::string& name,
                   const CsvFormat& format = {});

/// What is wrong with the lines of a table, a message for each damaged line.
struct CsvDefects {
  std::vector<std::string> messages;
  /// The line after which none was looked at, or 0 where all of them were: the header
  /// is wrong, or a quote is not closed.
  std::int64_t last_line = 0;
};

/// Reads a table as `parse_csv` does and goes on after damaged lines, up to `most`.
CsvDefects csv_defects(std::span<const std::byte> bytes, const std::string& name,
                       const CsvFormat& format, std::size_t most);

}  // namespace millstream
