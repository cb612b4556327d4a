#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"

namespace millstream {

/// The columns begin, begin + step, ... before `end`. A negative bound counts from the
/// last column; without `end` the range ends there.
struct CsvRange {
  std::int64_t begin = 0;
  std::optional<std::int64_t> end = {};
  std::int64_t step = 1;
};

/// Columns of a table: one by its name, one by its index, or a range of indices. A
/// negative index counts from the last column.
using CsvReference = std::variant<std::string, std::int64_t, CsvRange>;

/// A field of the samples: one column, or several columns that are read as one array.
struct CsvField {
  std::string name;
  std::vector<CsvReference> columns = {};  // empty means the column of the same name
  bool is_array = false;                   // otherwise there is one column
};

/// The format of a table, and what to read from it.
struct CsvFormat {
  char delimiter = ',';
  bool header = true;  // the first line names the columns
  /// Empty means one field for each column. The cells of columns that no field uses may
  /// contain anything.
  std::vector<CsvField> fields = {};
  std::optional<char> comment = {};  // lines that begin with it are skipped
  /// Stored for a missing value: a cell that is empty, "NA", "N/A", "null" or "nan", in
  /// any case. Without it, "nan" is a number and the other cells are errors.
  std::optional<double> missing = {};
  bool mask = false;  // fill `CsvColumn::present`
};

/// The values of a field, one row after the other. They are bool if all cells are
/// "true" or "false" in any case, int64 if all are integers that fit, else float64.
struct CsvColumn {
  std::string name;  // "column0", "column1", ... without a header
  Shape shape;       // () for one column, (k) for an array of k columns
  DType dtype = DType::kInt64;
  bool has_values = false;  // a cell that is not missing has determined the dtype
  std::vector<std::int64_t> integers = {};
  std::vector<double> reals = {};
  std::vector<std::uint8_t> booleans = {};
  std::vector<std::uint8_t> present = {};  // 0 for a missing value; only with `mask`

  const std::byte* data() const noexcept;
};

struct CsvTable {
  std::vector<CsvColumn> columns;
  std::int64_t rows = 0;
};

/// Parses a table of numbers and booleans. Cells may be quoted, lines may end in CRLF,
/// the text may begin with a byte order mark, and empty lines are skipped. Throws
/// `DataError` with `name`, line and column for a cell that is not a value and for a
/// line that is too short or too long. Throws `ArgumentError` for a missing column.
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
