#pragma once

#include <filesystem>

#include "millstream/codec/csv.h"
#include "millstream/source/arrays.h"

namespace millstream {

/// Samples that are the lines of a table of numbers, a scalar field for each column.
/// The table is parsed once and kept in memory. Throws as `parse_csv` does.
ArraysSource csv_source(const std::filesystem::path& path,
                        const CsvFormat& format = {});

}  // namespace millstream
