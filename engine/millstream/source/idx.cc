#include "millstream/source/idx.h"

#include <memory>
#include <utility>

#include "millstream/codec/idx.h"
#include "millstream/source/unpack.h"

namespace millstream {

ColumnsSource idx_source(const std::vector<FieldFiles>& fields,
                         const std::filesystem::path& cache) {
  return ColumnsSource(
      joined_columns(fields, [&](const std::filesystem::path& packed) -> OpenedArray {
        File file(unpacked(packed, cache, [&](std::span<const std::byte> head) {
          ByteReader reader(head, packed.string());
          const ArrayLayout layout = parse_idx_header(reader);
          return layout.offset + layout.bytes();
        }));
        const auto header = file.bytes(0, kIdxHeader);
        ByteReader reader(header, packed.string());
        const ArrayLayout layout = parse_idx(reader, file.size());
        MappedArray array =
            mapped_array(std::make_shared<const MappedFile>(std::move(file)), layout);
        array.name = packed.string();
        return {layout, std::move(array)};
      }));
}

}  // namespace millstream
