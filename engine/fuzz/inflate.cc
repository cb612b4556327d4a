#include "millstream/codec/inflate.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  if (size == 0) return 0;
  constexpr std::int64_t kLimit = 1 << 20;
  const auto bytes = fuzzed(data, size);
  const auto read = [&](std::int64_t offset, std::int64_t count) {
    const auto part = bytes.subspan(static_cast<std::size_t>(offset),
                                    static_cast<std::size_t>(count));
    return std::vector<std::byte>(part.begin(), part.end());
  };
  DeflatedRange packed = {.name = "fuzzed", .end = static_cast<std::int64_t>(size)};
  packed.format = data[0] == 0x1F ? Deflated::kGzip : Deflated::kRaw;
  return accept_or_refuse([&] {
    std::int64_t sunk = 0;
    const auto sink = [&](std::span<const std::byte> piece) {
      sunk += static_cast<std::int64_t>(piece.size());
      if (sunk > kLimit) throw DataError("more than the test accepts");
    };
    const Contents whole = inflate_all(packed, read, sink);
    require(sunk == whole.size);
    // Inflate again with another piece size, now that the size and the CRC are known.
    packed.size = whole.size;
    packed.crc = whole.crc;
    sunk = 0;
    const Contents again = inflate_all(packed, read, sink, 2 + data[size - 1] % 32);
    require(sunk == whole.size && again.crc == whole.crc);
  });
}
