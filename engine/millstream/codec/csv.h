#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millstream/core/dtype.h"

namespace millstream {

/// The format of a table of numbers.
struct CsvFormat {
  char delimiter = ',';
  bool header = true;  // the first line names the columns
  /// The columns to read, in this order; empty means all. The cells of other columns
  /// may contain anything.
  std::vector<std::string> columns;
};

/// A column of numbers: int64 if all of them are integers that fit, else float64.
struct CsvColumn {
  std::string name;  // "column0", "column1", ... without a header
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

/// Parses a table of numbers. Cells may be quoted, lines may end in CRLF, the text may
/// begin with a byte order mark, and empty lines are skipped. Throws `DataError` with
/// `name`, line and column for a cell that is not a number and for a line that is too
/// short or too long. Throws `ArgumentError` for a missing column.
CsvTable parse_csv(std::span<const std::byte> bytes, const std::string& name,
                   const CsvFormat& format = {});

/// The defects of a table.
struct CsvDefects {
  std::vector<std::string> messages;  // one per damaged line
  /// The line at which the check stopped because the header is wrong or a quote is not
  /// closed; 0 if it checked all lines.
  std::int64_t last_line = 0;
};

/// Checks a table as `parse_csv` does, but continues after a damaged line, until it has
/// found `most` of them.
CsvDefects csv_defects(std::span<const std::byte> bytes, const std::string& name,
                       const CsvFormat& format, std::size_t most);

}  // namespace millstream
