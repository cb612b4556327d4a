#pragma once

#include <filesystem>

#include "millstream/codec/csv.h"
#include "millstream/source/arrays.h"

namespace millstream {

/// The lines of a table. It is parsed once and kept in memory, packed as rows. With
/// `mask`, each field NAME has a second field NAME_present of booleans, false for
/// missing values. Throws like `parse_csv`, and `ArgumentError` if there is another
/// field of that name. With `narrow`, throws `DataError` for an integer that does not
/// fit into 32 bits.
ArraysSource csv_source(const std::filesystem::path& path, const CsvFormat& format = {},
                        bool narrow = false);

}  // namespace millstream
