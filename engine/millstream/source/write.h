#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "millstream/source/source.h"

namespace millstream {

/// Called repeatedly with the number of samples written so far. It may throw to stop.
using Progress = std::function<void(std::int64_t samples)>;

/// These functions write all samples of a source, in order. They write under temporary
/// names and rename the files when all are complete. They throw `ArgumentError` for
/// data that the format cannot store and `IoError` if writing fails.

/// Writes one .npy file per field.
void write_npy(const Source& source, const std::vector<std::filesystem::path>& paths,
               const Progress& progress = {});

/// Writes one uncompressed IDX file per field.
void write_idx(const Source& source, const std::vector<std::filesystem::path>& paths,
               const Progress& progress = {});

/// Writes one packed file, whose header holds the schema.
void write_packed(const Source& source, const std::filesystem::path& path,
                  const Progress& progress = {});

/// Writes a CSV file with a header. A field of several elements becomes several columns
/// named x_0, x_1 and so on. Reading the numbers back gives the same values.
void write_csv(const Source& source, const std::filesystem::path& path,
               char delimiter = ',', const Progress& progress = {});

}  // namespace millstream
