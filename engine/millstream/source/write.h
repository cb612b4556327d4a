#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "millstream/source/source.h"

namespace millstream {

/// Called from time to time with the number of samples written; may throw to stop.
using Progress = std::function<void(std::int64_t samples)>;

/// These write all samples of a source, in their order. Files are written under
/// temporary names and renamed when all are complete. They throw `ArgumentError` for
/// what a format cannot hold and `IoError` where the system cannot write.

/// An .npy file for each field.
void write_npy(const Source& source, const std::vector<std::filesystem::path>& paths,
               const Progress& progress = {});

/// A raw IDX file for each field.
void write_idx(const Source& source, const std::vector<std::filesystem::path>& paths,
               const Progress& progress = {});

/// One file of packed records that describes itself.
void write_packed(const Source& source, const std::filesystem::path& path,
                  const Progress& progress = {});

/// A table with a header. A field of several elements becomes as many columns, named
/// x_0, x_1 and so on; numbers are written so that they read back as they were.
void write_csv(const Source& source, const std::filesystem::path& path,
               char delimiter = ',', const Progress& progress = {});

}  // namespace millstream
