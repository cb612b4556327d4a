#pragma once

#include <filesystem>

#include "millstream/codec/csv.h"
#include "millstream/source/arrays.h"

namespace millstream {

/// The lines of a table of numbers, with one scalar field per column. The table is
/// parsed once and kept in memory. Throws like `parse_csv`.
ArraysSource csv_source(const std::filesystem::path& path,
                        const CsvFormat& format = {});

}  // namespace millstream
