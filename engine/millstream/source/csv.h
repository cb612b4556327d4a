#pragma once

#include <filesystem>

#include "millstream/codec/csv.h"
#include "millstream/source/arrays.h"

namespace millstream {

/// The lines of a table. It is parsed once and kept in memory. With `mask`, each field
/// NAME has a second field NAME_present of booleans, false for missing values. Throws
/// like `parse_csv`, and `ArgumentError` if there is another field of that name.
ArraysSource csv_source(const std::filesystem::path& path,
                        const CsvFormat& format = {});

}  // namespace millstream
