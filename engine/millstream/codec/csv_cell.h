#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "millstream/codec/csv.h"

namespace millstream {

/// Why a cell was not stored.
struct CellError {
  std::string_view expected;
  std::string_view advice;
};

/// Makes the column `rows` rows long. New values are zeros and, with `mask`, present.
void resize(CsvColumn& column, std::int64_t rows, bool mask);

/// Parses a cell and stores it as value `at` of the column. Changes the dtype of the
/// column if the value needs another one. `missing` is that of the format.
std::optional<CellError> store_cell(std::string_view cell, std::size_t at,
                                    const std::optional<double>& missing,
                                    CsvColumn& column);

}  // namespace millstream
